"""Work side by side: one item that kills its process or takes too long does not lose the rest."""

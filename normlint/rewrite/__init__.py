"""How graphs are edited, and the algebra of folding and fusing."""

"""Rules of the house of Acme."""

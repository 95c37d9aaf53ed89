"""The rules that come with normlint, one a file."""

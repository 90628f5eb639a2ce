"""The page on which two or three runs stand beside each other."""

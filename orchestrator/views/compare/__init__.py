"""The page that shows two or three runs side by side."""

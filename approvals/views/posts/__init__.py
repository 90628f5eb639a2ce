"""What a review takes beside signatures: drafts, comments, and challenges of passkeys."""

"""The websockets of the live views."""

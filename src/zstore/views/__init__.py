"""Views: many arrays read as one, without copying anything."""

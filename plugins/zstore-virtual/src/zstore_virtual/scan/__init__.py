"""What reads the index of another format's file and makes a manifest of it."""

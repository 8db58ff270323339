"""Other libraries: zstore's data in their objects, and their data in zstore's stores."""

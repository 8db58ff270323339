"""Work on whole hierarchies: converting, rechunking, copying and verifying them."""

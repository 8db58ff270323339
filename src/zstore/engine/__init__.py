"""Running a plan: locate, fetch, decode and scatter; gather, encode and put."""

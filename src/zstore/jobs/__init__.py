"""Long jobs: plans, their units, what makes them and what keeps which of them are done."""

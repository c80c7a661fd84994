"""One loop for everything, and what it is made of: schedules, optimisers, checkpoints, budgets."""

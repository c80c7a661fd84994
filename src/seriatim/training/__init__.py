"""Training: one loop for all tasks, and its optimizers, schedules, checkpoints, budgets and distillation."""

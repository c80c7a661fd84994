"""The task forecast: `spec` declares it without torch, `task` computes."""

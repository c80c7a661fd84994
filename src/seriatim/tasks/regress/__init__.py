"""The task regress: `spec` declares it without torch, `task` computes."""

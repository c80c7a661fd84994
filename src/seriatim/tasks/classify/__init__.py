"""The task classify: `spec` declares it without torch, `task` computes."""

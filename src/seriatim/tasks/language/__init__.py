"""The task language: `spec` declares it without torch, `task` computes."""

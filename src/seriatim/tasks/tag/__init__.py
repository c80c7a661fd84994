"""The task tag: `spec` declares it without torch, `task` computes."""

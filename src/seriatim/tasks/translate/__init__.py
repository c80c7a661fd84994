"""The task translate: `spec` declares it without torch, `task` computes."""

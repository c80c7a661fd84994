"""The task choose: `spec` declares it without torch, `task` computes."""

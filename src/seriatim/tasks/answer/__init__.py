"""The task answer: `spec` declares it without torch, `task` computes."""

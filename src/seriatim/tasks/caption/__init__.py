"""The task caption: `spec` declares it without torch, `task` computes."""

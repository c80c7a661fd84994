"""The task music: `spec` declares it without torch, `task` computes."""

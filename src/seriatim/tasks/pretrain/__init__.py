"""The task pretrain: `spec` declares it without torch, `task` computes."""

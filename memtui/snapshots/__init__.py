"""Memory snapshots of torch (`torch.cuda.memory._dump_snapshot`): read safely, replayed, asked."""

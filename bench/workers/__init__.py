"""Worker processes of benchmarks: ours, the reference's, torch's."""

"""Files that give a run or a population to Kubernetes or Slurm."""

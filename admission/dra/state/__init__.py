"""The frozen state of the cluster that a gang is planned against."""

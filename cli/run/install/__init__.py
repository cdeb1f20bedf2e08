"""The work of `db`: databases installed on Kubernetes with the recipes in dbinstall/."""

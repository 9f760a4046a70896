"""The resource API with the conventions of Kubernetes: verbs, watches, patches, discovery, tables."""

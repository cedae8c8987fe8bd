"""PodResources API v1alpha1: messages generated from api.proto."""

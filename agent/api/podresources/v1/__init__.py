"""PodResources API v1: messages generated from api.proto."""

"""The `__model__` files of Paddle 1.x: protobuf messages, attributes, upgrades of newer ops."""

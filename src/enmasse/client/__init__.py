"""The public asyncio AMQP client, and its blocking facade."""

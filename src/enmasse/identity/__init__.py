"""Who somebody is and what they may do: users, proofs, permissions. Pure; files and sockets are the node's."""

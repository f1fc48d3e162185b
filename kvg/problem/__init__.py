"""Problems by structure: canonical text with typed slots, constraints, and the family digest."""

"""The artifact's own documents and bytes: tokens, manifest, page, statement, verified artifact."""

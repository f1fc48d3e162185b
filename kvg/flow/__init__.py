"""Flows: one verb per file, one public function; nothing here prints or exits."""

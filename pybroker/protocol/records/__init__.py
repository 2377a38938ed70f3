"""Record batches (format v2): views, walks, builders, checks, control records, codecs. Imported module by module."""

"""Static files of our own project in production: compressed, named by their content,
the modules' imports included.
"""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedFiles(CompressedManifestStaticFilesStorage):
    """Replaces the names in the imports of modules too. Otherwise a module would import
    its siblings under their plain names, which browsers must not keep for good.
    """

    support_js_module_import_aggregation = True

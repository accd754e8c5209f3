"""The store on a local disk.

``store`` has objects as files, ``atomic_files`` writes them in one step, ``process_lock`` excludes other processes of the
machine.
"""

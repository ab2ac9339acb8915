"""The Django project of test_django.py: settings, one view, and commands."""

"""The code that papers print, over our services."""

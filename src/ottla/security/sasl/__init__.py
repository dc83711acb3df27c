"""The mechanisms of SASL, each as bytes in and bytes out."""

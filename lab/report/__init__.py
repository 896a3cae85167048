"""What people look at: the verdict table, the plots and the state page.

Without one room for it, every notebook would word and round the same result differently. Nothing is imported
here, so that the table stays quick and matplotlib is loaded only by who draws.
"""

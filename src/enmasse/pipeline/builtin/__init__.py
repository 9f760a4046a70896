"""The built-in pipelines: a module for each, named as it, with ``build(context, parameters)``.

What several of them share:

    parameters   from what was declared to the class that checks it
    telemetry    messages of devices as rows: readings, days
    messages     rows as messages of an address
    bucketed     state of many devices in a few values
    devices      what is remembered of each device, as columns
    models       trained models, versioned, on disk
"""

// CloudEvents' own library beside MQTT.js: sends an event in a mode of MQTT, and prints what comes of the topic, read
// as an event by that library. Arguments: port, topic, mode (binary or structured), number of events to be received.
'use strict';

const {CloudEvent, MQTT} = require('cloudevents');
const mqtt = require('mqtt');

const [port, topic, mode, count] = process.argv.slice(2);
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {protocolVersion: 5, reconnectPeriod: 0});
let left = Number(count);

client.on('error', error => {
    console.error(error.message);
    process.exit(1);
});
client.on('message', (_topic, payload, packet) => {
    const told = packet.properties || {};
    const event = MQTT.toEvent({
        PUBLISH: {'Content Type': told.contentType}, payload: payload.toString(), body: payload.toString(),
        headers: {...told.userProperties}, 'User Properties': {...told.userProperties},
    });
    console.log(JSON.stringify(event));
    left -= 1;
    if (!left) client.end();
});
client.subscribe(topic, {qos: 1}, () => {
    console.log('subscribed');
    const event = new CloudEvent({
        id: '7', source: '/till', type: 'sold', time: '2026-01-31T12:00:00.000Z', shop: '3',
        datacontenttype: 'application/json', data: {price: 19.9},
    });
    const message = MQTT[mode](event);
    const body = typeof message.payload === 'string' ? message.payload : JSON.stringify(message.payload);
    const properties = {contentType: message.PUBLISH['Content Type']};
    for (const [name, value] of Object.entries(message['User Properties'])) {
        if (value !== undefined) (properties.userProperties ??= {})[name] = String(value);
    }
    client.publish(topic, body, {qos: 1, properties}, error => {
        if (error) throw error;
    });
});
